"""Who is there and who has what: what is asked and answered by frames. Pure: time and randomness are arguments."""
