"""The paper as commands: its figures, its tables with our numbers beside, and a search for settings of one's own.

The rows of the tables are data (`tables`). A row and a seed make a trial; trials live in an Optuna study that any
number of processes and machines work off (`study`), and what came out is put beside the paper's numbers (`report`).
`figures` draws figures 1 and 2, `tune` searches with the same engine. Built on randfield's public API and on
`randfield.learn`; `pip install 'randfield[study]'` brings what it needs.
"""
