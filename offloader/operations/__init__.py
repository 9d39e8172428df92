"""What operators do with an archive: verify, rebuild, restore, export, the doctor, and costs."""
