"""What people and programs ask the daemon by HTTP: the page, and figures. Processes of their own."""
