// SPDX-License-Identifier: Apache-2.0

package oldconfig

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// writeOut returns the section of a component in which copies of the anchored nodes replace aliases and merged
// settings, so that the copies can be converted. It returns a section without former settings unchanged. check is
// Check or CheckEmissions.
func writeOut(section *yaml.Node, check func(map[string]any) error) *yaml.Node {
	var conf map[string]any
	if section.Decode(&conf) != nil || check(conf) == nil { // an alias within its own anchor cannot be decoded
		return section
	}
	return withoutAliases(section)
}

func withoutAliases(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		written := copyOf(n.Alias)
		written.HeadComment, written.LineComment, written.FootComment = n.HeadComment, n.LineComment, n.FootComment
		return withoutAliases(written)
	}
	for i := range n.Content {
		n.Content[i] = withoutAliases(n.Content[i])
	}
	if n.Kind == yaml.MappingNode {
		mergeSettings(n)
	}
	return n
}

// mergeSettings replaces the merge key of a mapping by the settings that the mapping does not override.
func mergeSettings(mapping *yaml.Node) {
	at := index(mapping, "<<")
	if at == len(mapping.Content) || mapping.Content[at].ShortTag() != "!!merge" {
		return
	}
	sources := []*yaml.Node{mapping.Content[at+1]}
	if sources[0].Kind == yaml.SequenceNode {
		sources = sources[0].Content
	}
	mapping.Content = slices.Delete(mapping.Content, at, at+2)
	for _, source := range sources {
		for i := 0; i+1 < len(source.Content); i += 2 {
			if child(mapping, source.Content[i].Value) == nil {
				mapping.Content = slices.Insert(mapping.Content, at, source.Content[i], source.Content[i+1])
				at += 2
			}
		}
	}
}

// copyOf returns a copy of a node without its anchors.
func copyOf(n *yaml.Node) *yaml.Node {
	c := *n
	c.Anchor, c.Content = "", nil
	for _, element := range n.Content {
		c.Content = append(c.Content, copyOf(element))
	}
	return &c
}
