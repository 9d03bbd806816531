"""What is needed only for a Pithos without atomic conditions, Synnefo's."""
