module github.com/energyreceiver/energyreceiver

go 1.26
