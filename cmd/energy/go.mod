module github.com/energyreceiver/energyreceiver/cmd/energy

go 1.26.0

require (
	// Of this checkout: the command and the receiver share what a machine and a trained model are.
	github.com/energyreceiver/energyreceiver v0.0.0-00010101000000-000000000000
	github.com/prometheus/client_model v0.6.2
	github.com/prometheus/common v0.70.1
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.49.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace github.com/energyreceiver/energyreceiver => ../..
