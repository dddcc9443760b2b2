"""How do other libraries see something that can be read? One module per library, imported only when used."""
