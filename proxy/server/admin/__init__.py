"""The admin port: what is going on inside, and the few things one may ask for."""
