// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// A mutant is one small change of a source file.
type mutant struct {
	kind       string
	at         token.Position // with an absolute path
	start, end int            // bytes of the file that with replaces
	with       string
}

// A visitor collects the mutants of one file.
type visitor struct {
	fset    *token.FileSet
	source  []byte
	mutants []mutant
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
		if imports, ok := decl.(*ast.GenDecl); !ok || imports.Tok != token.IMPORT {
			ast.Inspect(decl, v.visit)
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
	if f.Body == nil || len(f.Body.List) == 0 {
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
	from, to := v.fset.Position(start), v.fset.Position(end)
	v.mutants = append(v.mutants, mutant{kind, from, from.Offset, to.Offset, with})
}

func (v *visitor) text(n ast.Node) string {
	return string(v.source[v.fset.Position(n.Pos()).Offset:v.fset.Position(n.End()).Offset])
}

// apply returns the text of the file with the change.
func (m mutant) apply() (string, error) {
	source, err := os.ReadFile(m.at.Filename)
	if err != nil {
		return "", err
	}
	return string(source[:m.start]) + m.with + string(source[m.end:]), nil
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d:%d %s", filepath.Base(m.at.Filename), m.at.Line, m.at.Column, m.kind)
}
