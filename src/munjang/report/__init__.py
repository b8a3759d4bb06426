"""Reports: HTML pages (`html`), charts (`svg`) and tables for terminals (`tables`)."""
