module millstream/examples/simplepipe/filter

go 1.21

require millstream/sdk v0.0.0

replace millstream/sdk => ../../../sdk/go
