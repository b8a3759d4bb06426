"""How the bundled models are made: from public data and teachers to the models that lie in the package."""
