"""How the admin writes dates; Django reads these before its own formats of the language."""
