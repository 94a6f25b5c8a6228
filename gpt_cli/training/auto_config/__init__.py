"""Choose the settings of `gpt train` without --config by fixed rules, from measurements of the text and the machine."""
