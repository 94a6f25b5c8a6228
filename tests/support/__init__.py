"""What tests share: commands in this process, small trainings, faults, and disks that lose power."""
