// SPDX-License-Identifier: Apache-2.0

package ledger

import "github.com/energyreceiver/energyreceiver/internal/identity"

// series identifies the series of an account. Two accounts with the same series are the same to the
// next consumer.
type series struct {
	entity  identity.Entity
	process identity.Process // or program, zero for other entities
	in      identity.Key     // for a group: its names
	group   bool
}

// seriesOf returns the series of an owner's entity. ok is false if the owner has no such entity.
func seriesOf(e identity.Entity, o *identity.Owner) (s series, ok bool) {
	if !e.Of(o) {
		return series{}, false
	}
	s.entity, s.in = e, e.Key(&o.Workload)
	s.process = processOf(e, o)
	return s, true
}

// processOf returns the process or program that identifies an account of the entity in addition to
// its workload. It is zero for other entities.
func processOf(e identity.Entity, o *identity.Owner) identity.Process {
	switch e {
	case identity.ProcessEntity:
		return o.Process
	case identity.ProgramEntity:
		return o.Process.Program()
	}
	return identity.Process{}
}

// groupSeries returns the series of the group of an owner's entity. It has no names if the group
// would have no names.
func groupSeries(e identity.Entity, o *identity.Owner) series {
	s := series{entity: e, group: true}
	switch n := o.Names; {
	case e == identity.ProgramEntity:
		s.process = o.Process.Program()
	case n == nil:
	case e == identity.ContainerEntity:
		s.in = identity.Key{n.Namespace, n.KubernetesContainer, n.Image}
	case e == identity.PodEntity:
		s.in = identity.Key{n.Namespace}
	}
	return s
}

// groupOwner returns the owner of a group.
func (s *series) groupOwner() *identity.Owner {
	o := &identity.Owner{Process: s.process}
	if s.entity != identity.ProgramEntity {
		o.Names = &identity.Names{Namespace: s.in[0], KubernetesContainer: s.in[1], Image: s.in[2]}
	}
	return o
}

// series returns the identity of the account's series.
func (a *Account) series() series {
	if a.group {
		return groupSeries(a.Entity, &a.Owner)
	}
	s, _ := seriesOf(a.Entity, &a.Owner)
	return s
}
