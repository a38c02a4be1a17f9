// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A mutant is one small change of a function.
type mutant struct {
	kind       string
	at         token.Position // with an absolute path
	start, end int            // bytes of the file that with replaces
	with       string
	function   *ast.FuncDecl
	body       token.Position // of the function, after its opening brace
	bodyEnd    int
}

// A visitor collects the mutants of one function.
type visitor struct {
	fset     *token.FileSet
	source   []byte
	function *ast.FuncDecl
	mutants  []mutant
}

// swapped maps an operator to the operator that replaces it.
var swapped = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
}

// drawn returns all mutants of the package in dir in an order that depends only on its source and seed.
func drawn(dir string, seed uint64) ([]mutant, error) {
	pkg, err := build.ImportDir(dir, 0)
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, name := range pkg.GoFiles {
		found, err := mutantsOf(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a reproducible draw, not a secret
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, nil
}

// mutantsOf returns the mutants of a file. A generated file has no mutants.
func mutantsOf(file string) ([]mutant, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, source, parser.ParseComments)
	if err != nil || ast.IsGenerated(parsed) {
		return nil, err
	}
	v := visitor{fset: fset, source: source}
	for _, decl := range parsed.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
			v.function = f
			ast.Inspect(f, v.visit)
		}
	}
	return v.mutants, nil
}

func (v *visitor) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		v.returnEarly(n)
	case *ast.IfStmt:
		v.replace("condition", n.Cond, "!("+v.text(n.Cond)+")")
	case *ast.BinaryExpr:
		if with, ok := swapped[n.Op]; ok {
			v.add("operator", n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), with.String())
		}
	case *ast.BasicLit:
		if n.Kind == token.INT || n.Kind == token.FLOAT {
			v.replace("constant", n, "("+n.Value+" + 1)")
		}
	case *ast.Ident:
		switch n.Name {
		case "true":
			v.replace("constant", n, "false")
		case "false":
			v.replace("constant", n, "true")
		}
	case *ast.BlockStmt:
		for _, statement := range n.List {
			v.drop(statement)
		}
	case *ast.CaseClause:
		for _, statement := range n.Body {
			v.drop(statement)
		}
	}
	return true
}

// drop removes a statement that has an effect only. A declaration cannot go without the uses of its name.
func (v *visitor) drop(statement ast.Stmt) {
	switch s := statement.(type) {
	case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt:
		v.replace("statement", s, "")
	case *ast.AssignStmt:
		if s.Tok != token.DEFINE {
			v.replace("statement", s, "")
		}
	}
}

// returnEarly makes a function return zero values at its start.
func (v *visitor) returnEarly(f *ast.FuncDecl) {
	if len(f.Body.List) == 0 {
		return
	}
	var zeros []string
	if f.Type.Results != nil {
		for _, result := range f.Type.Results.List {
			for range max(1, len(result.Names)) {
				zeros = append(zeros, "*new("+v.text(result.Type)+")")
			}
		}
	}
	after := f.Body.Lbrace + 1
	v.add("return", after, after, " if true { return "+strings.Join(zeros, ", ")+" }; ")
}

func (v *visitor) replace(kind string, n ast.Node, with string) { v.add(kind, n.Pos(), n.End(), with) }

func (v *visitor) add(kind string, start, end token.Pos, with string) {
	from, body := v.fset.Position(start), v.function.Body
	v.mutants = append(v.mutants, mutant{
		kind: kind, at: from, start: from.Offset, end: v.fset.Position(end).Offset, with: with,
		function: v.function, body: v.fset.Position(body.Lbrace + 1), bodyEnd: v.fset.Position(body.Rbrace).Offset,
	})
}

func (v *visitor) text(n ast.Node) string {
	return string(v.source[v.fset.Position(n.Pos()).Offset:v.fset.Position(n.End()).Offset])
}

// apply puts a changed copy of the function's body in front of the body, which runs if the variable
// has the mutant's name. The compiler reports errors in the copy as errors of the file mutant-NUMBER.
func (m *mutant) apply(texts map[string]string, name string, number int) error {
	data, err := os.ReadFile(m.at.Filename)
	if err != nil {
		return err
	}
	source := string(data)
	text, ok := texts[m.at.Filename]
	if !ok {
		text = source
	}
	at := m.body.Offset
	body := source[at:m.start] + m.with + source[m.end:m.bodyEnd]
	if m.function.Type.Results == nil {
		body += "\nreturn "
	}
	inserted := fmt.Sprintf(" if %s { /*line mutant-%d:1:1*/%s}; /*line %s:%d:%d*/",
		isOn(name), number, body, filepath.Base(m.at.Filename), m.body.Line, m.body.Column)
	texts[m.at.Filename] = text[:at] + inserted + text[at:]
	return nil
}

func (m *mutant) String() string {
	file := filepath.Join(filepath.Base(filepath.Dir(m.at.Filename)), filepath.Base(m.at.Filename))
	return fmt.Sprintf("%s:%d:%d %s", file, m.at.Line, m.at.Column, m.kind)
}

// markedError is a compiler's error in the copy of a mutant.
var markedError = regexp.MustCompile(`mutant-(\d+):`)

// draw returns count mutants of the package in dir as faults, without mutants that do not compile. The
// faults are in descending order of their places, so that applying one does not move the others.
func draw(root, dir string, count int, seed uint64, work string) ([]fault, error) {
	candidates, err := drawn(filepath.Join(root, dir), seed)
	if err != nil {
		return nil, err
	}
	broken := map[string]bool{}
	for {
		candidates = slices.DeleteFunc(candidates, func(m mutant) bool { return broken[m.String()] })
		faults := make([]fault, min(count, len(candidates)))
		for i := range faults {
			m := &candidates[i]
			faults[i] = fault{Name: m.String(), File: filepath.Join(dir, filepath.Base(m.at.Filename)), drawn: m}
		}
		slices.SortFunc(faults, func(a, b fault) int {
			return cmp.Or(strings.Compare(b.File, a.File), b.drawn.body.Offset-a.drawn.body.Offset, b.drawn.start-a.drawn.start)
		})
		overlay, err := (&set{Mutants: faults}).overlay(work)
		if err != nil || len(faults) == 0 {
			return faults, err
		}
		out, err := goTool(filepath.Join(root, dir), "build", "-gcflags=-e", "-overlay", overlay, ".")
		if err == nil {
			return faults, nil
		}
		marked := markedError.FindAllStringSubmatch(out, -1)
		if len(marked) == 0 {
			return nil, fmt.Errorf("%s: %w\n%s", dir, err, out)
		}
		for _, match := range marked {
			number, _ := strconv.Atoi(match[1])
			broken[faults[number].Name] = true
		}
	}
}

func goTool(dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}
