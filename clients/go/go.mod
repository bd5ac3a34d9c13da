module perdiem

go 1.19
