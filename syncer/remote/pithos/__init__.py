"""The client of Pithos servers, Synnefo's and ours."""
