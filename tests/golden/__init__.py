"""Sample volumes of each released format: how they are made and what they hold."""
