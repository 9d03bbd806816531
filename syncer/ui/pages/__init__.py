"""The pages: what is asked, whom to ask, which template. No rules."""
