"""How disks are erased and images deployed, and what the answers prove. Pure."""
