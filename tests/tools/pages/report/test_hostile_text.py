"""No text of a run does anything on the page of its report."""

from dataclasses import replace
from pathlib import Path

from support.browsers import OpenPage
from support.hostile import PAYLOADS
from support.pages import keep, snapshots_of
from support.records import changed

from gpt_cli.config.load import Likeness
from gpt_cli.tools.reports.page_content import report_page
from gpt_cli.tools.reports.run_record import LoggedSample, read_record


def test_no_text_of_a_run_does_anything(open_page: OpenPage, copied: Path, tmp_path: Path) -> None:
    keep(snapshots_of(2, 1, 2, PAYLOADS), copied)
    record = read_record(copied)
    texts = {str(number): payload for number, payload in enumerate(PAYLOADS)}
    hostile = replace(
        changed(record, data={"source": PAYLOADS}, inspect={"prompt": PAYLOADS[0]}),
        name="<img src=x onerror=fired(1)>",
        samples=tuple(LoggedSample(step, payload) for step, payload in enumerate(PAYLOADS)),
        environment={payload: payload for payload in PAYLOADS},
        corpus=texts,
        differs=Likeness(PAYLOADS[0], texts),
        notes=tuple(PAYLOADS),
    )
    path = tmp_path / "<img src=x onerror=fired(1)>.html"
    path.write_bytes(
        report_page([hostile, replace(hostile, name="</script><script>fired(1)</script>"), record], "step", {})
    )
    opened = open_page(path)
    page = opened.page
    page.check("#every-sample")
    for summary in page.locator("summary").all():
        summary.click()
    page.press(".panel.loss .curves", "End")
    page.click("#language")
    shown = page.locator(".sample p")
    tags = "found => found.flatMap((one) => [...one.querySelectorAll('*')].map((it) => it.tagName))"
    assert {*shown.evaluate_all(tags)} <= {"MARK"}  # of the prompt
    assert {*PAYLOADS} <= {*shown.all_text_contents()}
    none = dict.fromkeys(("img", "iframe", "link", "a", "object", "embed", "form"), 0)
    allowed = {"script": 2, "style": 1, **none}
    assert {name: page.locator(name).count() for name in allowed} == allowed
    assert page.evaluate("window.num_fired") == 0
    assert opened.requests == [path.as_uri()]
