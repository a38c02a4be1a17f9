// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// page is a file of text. Its lines have the numbers of the source's lines.
type page []string

func newPage(source []byte) page { return make(page, bytes.Count(source, []byte("\n"))+1) }

// add adds a passage. line is the number of its first line, from 1. add ends the passage's last
// sentence, so that the next passage begins a new sentence.
func (p page) add(line int, passage []string) {
	for i, text := range passage {
		text = strings.TrimSpace(text)
		if i == len(passage)-1 && text != "" && !strings.ContainsAny(text[len(text)-1:], ".!?") {
			text += "."
		}
		if at := line - 1 + i; at < len(p) && text != "" {
			p[at] = strings.TrimSpace(p[at] + " " + text)
		}
	}
}

// extractGo returns the comments of a Go file, and its string literals that are prose.
func extractGo(source []byte) ([]string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	p := newPage(source)
	for _, group := range file.Comments {
		for _, passage := range passagesOf(group, files) {
			p.add(passage.line, passage.text)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil && isProse(text) {
				p.add(files.Position(literal.Pos()).Line, strings.Split(strings.TrimSuffix(text, "\n"), "\n"))
			}
		}
		return true
	})
	return p, nil
}

// passage is consecutive lines of text.
type passage struct {
	line int
	text []string
}

// isNoEnglish matches comments that are not sentences: directives, licenses, and code in doc
// comments.
var isNoEnglish = regexp.MustCompile(`^(?:go:|nolint|export |SPDX-|\t|    )`)

// passagesOf returns the passages of a comment. Code and directives separate them.
func passagesOf(group *ast.CommentGroup, files *token.FileSet) (all []passage) {
	var now passage
	end := func() {
		if len(now.text) > 0 {
			all = append(all, now)
		}
		now = passage{}
	}
	for _, comment := range group.List {
		line := files.Position(comment.Pos()).Line
		text := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(comment.Text, "//"), "/*"), "*/")
		for i, l := range strings.Split(text, "\n") {
			l = strings.TrimPrefix(l, " ")
			if isNoEnglish.MatchString(l) || strings.TrimSpace(l) == "" {
				end()
				continue
			}
			if len(now.text) == 0 {
				now.line = line + i
			}
			now.text = append(now.text, l)
		}
	}
	end()
	return all
}

// isProse reports whether a string of a program is English: at least four words, and no characters
// of a query or a program.
func isProse(text string) bool {
	return len(strings.Fields(text)) >= 4 && !strings.ContainsAny(text, "{}<>;=")
}

var cComment = regexp.MustCompile(`(?s)//[^\n]*|/\*.*?\*/`)

// extractC returns the comments of a C file.
func extractC(source []byte) ([]string, error) {
	p := newPage(source)
	for _, at := range cComment.FindAllIndex(source, -1) {
		text := strings.TrimSuffix(strings.TrimLeft(string(source[at[0]:at[1]]), "/*"), "*/")
		if strings.Contains(text, "SPDX-") {
			continue
		}
		lines := strings.Split(text, "\n")
		for i := range lines {
			lines[i] = strings.TrimLeft(lines[i], " \t*")
		}
		line := 1 + bytes.Count(source[:at[0]], []byte("\n"))
		if strings.HasPrefix(string(source[at[0]:]), "//") && line > 1 && p[line-2] != "" {
			p[line-2] = strings.TrimSuffix(p[line-2], ".") // the sentence continues
		}
		p.add(line, lines)
	}
	return p, nil
}

var description = regexp.MustCompile(`^( *)(?:description|note|extended_documentation|from_version|warnings?): *(.*)$`)

// extractYAML returns the descriptions of a metadata.yaml, including their indented continuation
// lines.
func extractYAML(source []byte) ([]string, error) {
	p := newPage(source)
	indent := -1
	for i, line := range strings.Split(string(source), "\n") {
		if m := description.FindStringSubmatch(line); m != nil {
			indent = len(m[1])
			p.add(i+1, []string{strings.Trim(strings.TrimLeft(m[2], ">|-"), `"'`)})
			continue
		}
		text := strings.TrimLeft(line, " ")
		if indent < 0 || len(line)-len(text) <= indent {
			indent = -1
			continue
		}
		p[i] = strings.Trim(text, `"'`)
	}
	return p, nil
}
