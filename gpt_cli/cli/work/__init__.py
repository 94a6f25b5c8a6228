"""What the commands do: a file for each, with its imports at the top.

`gpt_cli/cli/sample.py` is the signature of `gpt sample`: the flags and their help, and nothing heavy, so that
`gpt --help` is fast. Called, it imports `sample` from the file of the same name here and passes on what the user
gave, under the same names. A command that can refuse its flags without torch has a light file here, which then calls a
second one: `sample.py` calls `sampling.py`.
"""
