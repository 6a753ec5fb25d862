"""Explains an out-of-memory error, a snapshot or a recording, and what other settings would have done.

explaining.py       dryfit.explain: what the source is, by its content
explanation.py      the answer, as values
told.py             a text: one error's, or a log of several ranks
recorded.py         a snapshot or recording, one card after the other
cause.py            why a request failed: one Finding with one next step
worth_trying.py     which settings to play a recording under
other_settings.py   what they would have changed, and on which cards it would have run
"""
