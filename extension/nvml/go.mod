module github.com/energyreceiver/energyreceiver/extension/nvml

go 1.26.0

replace github.com/energyreceiver/energyreceiver => ../..
