package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/must"
	"github.com/zkrecipes/zkrecipes/internal/real/mutants/planted"
)

// A bug is planted in a copy of the library with which the processes are built.
type bug struct {
	planted.Bug
	Recipe string // to run
}

// bugs has each bug once for each recipe that must show it.
var bugs = func() (all []bug) {
	for _, b := range planted.Bugs {
		for _, recipe := range b.Recipes {
			one := bug{b, recipe}
			one.Name = recipe + ": " + b.Name
			all = append(all, one)
		}
	}
	return all
}()

// findPlanted looks for some bugs with the seed's faults (drawn as in other runs).
func (p plan) findPlanted(ctx context.Context, on ensemble, some string) (failed bool, err error) {
	err = must.Try(func() {
		match := must.Get(regexp.Compile(some))
		dir := must.Get(os.MkdirTemp("", "planted"))
		defer os.RemoveAll(dir)

		for _, b := range bugs {
			if !match.MatchString(b.Name) {
				continue
			}
			p.Recipes, p.Worker = []string{b.Recipe}, b.build(ctx, filepath.Join(dir, "worker"))
			began := time.Now()
			failure, err := p.play(ctx, on, newReport())
			if err != nil {
				must.Fail("%s: %w", b.Name, err)
			}
			if failure == "" {
				failed = true
				fmt.Printf("NOT FOUND within %v: %s\n", p.For, b.Name)
			} else {
				line, _, _ := strings.Cut(failure, "\n")
				fmt.Printf("%8v  %-60s %s\n", time.Since(began).Round(time.Second), b.Name, line)
			}
		}
	})
	return failed, err
}

// build builds the processes with the bug. The working tree isn't changed. It fails by package
// must.
func (b bug) build(ctx context.Context, binary string) string {
	root := must.Get(planted.Root())
	overlay := must.Get(b.Overlay(root, filepath.Dir(binary)))
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", binary, "./internal/real/nemesis")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		must.Fail("%s does not build: %w: %s", b.Name, err, out)
	}
	return binary
}
