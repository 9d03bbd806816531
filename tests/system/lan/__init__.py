"""Trials of the real program as a LAN peer, by what goes wrong: each is a function; test_lan_trials.py runs them."""
