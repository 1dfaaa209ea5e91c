"""The admin port: what is going on inside, and a few actions."""
