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
	"path/filepath"
	"slices"
	"strings"
)

// A mutant is one small change of a function.
type mutant struct {
	kind     string
	at, body token.Position // of the change, and of the function's body after its brace
	changed  string         // the body with the change
}

// A visitor collects the mutants of one function.
type visitor struct {
	fset     *token.FileSet
	source   string
	function *ast.FuncDecl
	mutants  []mutant
}

// swapped maps an operator to the operator that replaces it.
var swapped = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
}

// drawn returns all mutants of the package in dir in an order that depends only on source and seed.
func drawn(dir string, seed uint64) ([]mutant, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
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
	v := visitor{fset: fset, source: string(source)}
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
		v.replace("condition", n.Cond, "!("+v.text(n.Cond.Pos(), n.Cond.End())+")")
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
		v.drop(n.List)
	case *ast.CaseClause:
		v.drop(n.Body)
	}
	return true
}

// drop removes each statement that only has an effect. Declarations stay, because their names are
// used.
func (v *visitor) drop(statements []ast.Stmt) {
	for _, statement := range statements {
		switch s := statement.(type) {
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt:
			v.replace("statement", s, "")
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				v.replace("statement", s, "")
			}
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
				zeros = append(zeros, "*new("+v.text(result.Type.Pos(), result.Type.End())+")")
			}
		}
	}
	after := f.Body.Lbrace + 1
	v.add("return", after, after, " if true { return "+strings.Join(zeros, ", ")+" }; ")
}

func (v *visitor) replace(kind string, n ast.Node, with string) { v.add(kind, n.Pos(), n.End(), with) }

func (v *visitor) add(kind string, start, end token.Pos, with string) {
	body := v.function.Body
	changed := v.text(body.Lbrace+1, start) + with + v.text(end, body.Rbrace)
	if v.function.Type.Results == nil {
		changed += "\nreturn "
	}
	v.mutants = append(v.mutants, mutant{kind, v.fset.Position(start), v.fset.Position(body.Lbrace + 1), changed})
}

// text returns the source between two positions.
func (v *visitor) text(from, to token.Pos) string {
	return v.source[v.fset.Position(from).Offset:v.fset.Position(to).Offset]
}

func (m *mutant) String() string {
	dir, file := filepath.Split(m.at.Filename)
	return fmt.Sprintf("%s:%d:%d %s", filepath.Join(filepath.Base(dir), file), m.at.Line, m.at.Column, m.kind)
}

// apply inserts the changed body before the function's body. It runs if the variable has the
// mutant's name. The compiler reports errors in the changed body as errors of a file with that
// name.
func (m *mutant) apply(text, name string) string {
	inserted := fmt.Sprintf(" if %s { /*line %s:1:1*/%s}; /*line %s:%d:%d*/",
		isOn(name), name, m.changed, filepath.Base(m.body.Filename), m.body.Line, m.body.Column)
	return text[:m.body.Offset] + inserted + text[m.body.Offset:]
}

// draw returns count mutants of the package in dir as faults, without mutants that do not compile.
// The faults are in descending order of position, so that applying one does not move the others.
func draw(dir string, count int, seed uint64) ([]fault, error) {
	work, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	candidates, err := drawn(dir, seed)
	if err != nil {
		return nil, err
	}
	for {
		faults := make([]fault, min(count, len(candidates)))
		for i := range faults {
			m := &candidates[i]
			faults[i] = fault{Name: m.String(), File: filepath.Join(dir, filepath.Base(m.at.Filename)), drawn: m}
		}
		slices.SortFunc(faults, func(a, b fault) int {
			return cmp.Or(strings.Compare(b.File, a.File), b.drawn.body.Offset-a.drawn.body.Offset, b.drawn.at.Offset-a.drawn.at.Offset)
		})
		overlay, err := (&set{Mutants: faults}).overlay(work)
		if err != nil || len(faults) == 0 {
			return faults, err
		}
		out, err := goTool(dir, "build", "-gcflags=-e", "-overlay", overlay, ".")
		if err == nil {
			return faults, nil
		}
		compiled := slices.DeleteFunc(slices.Clone(candidates), func(m mutant) bool { return strings.Contains(out, m.String()+":") })
		if len(compiled) == len(candidates) {
			return nil, fmt.Errorf("%s: %w\n%s", dir, err, out)
		}
		candidates = compiled
	}
}
