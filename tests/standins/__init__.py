"""Stand-ins of trainers: their modules, names and signatures, without a line of their code. Each cites what it stands for."""
