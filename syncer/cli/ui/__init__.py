"""From linked roots and commands to what the page is made of: `ui.ports.PagePorts`, and the page's process."""
