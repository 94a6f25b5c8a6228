"""What the commands do: a file for each, with its imports at the top.

`gpt_cli/cli/heads.py` is the signature of `gpt heads`: the flags and their help, and nothing heavy, so that
`gpt --help` is fast. Called, it imports `heads` from the file of the same name here and passes on what the user
gave, under the same names. A command that can refuse its flags without torch has a light file here, which then calls a
second one: `heads.py` calls `head_report.py`.
"""
