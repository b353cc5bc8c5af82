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

	"github.com/zkrecipes/zkrecipes/internal/real/mutants/planted"
)

// A bug is planted in a copy of the library with which the processes are built. If it has no File,
// it's in the processes' own code.
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

// A finding says whether and how a planted bug was found.
type finding struct {
	bug
	After time.Duration // 0 if it wasn't found
	By    string
}

// findPlanted looks for each bug with the seed's faults (drawn as in other runs).
func (o options) findPlanted(ctx context.Context, on ensemble, p plan) (failed bool, err error) {
	match, err := regexp.Compile(o.bugs)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "planted")
	if err != nil {
		return false, err
	}

	defer os.RemoveAll(dir)

	report := newReport(o, on)
	for _, b := range bugs {
		if !match.MatchString(b.Name) {
			continue
		}
		plan := p
		plan.Recipes = []string{b.Recipe}
		if plan.Worker, err = b.build(ctx, filepath.Join(dir, "worker")); err != nil {
			return false, err
		}
		began := time.Now()
		failure, err := o.play(ctx, on, plan, newReport(o, on))
		if err != nil {
			return false, fmt.Errorf("%s: %w", b.Name, err)
		}
		found := finding{bug: b, By: failure}
		if failure == "" {
			failed = true
			fmt.Printf("NOT FOUND within %v: %s\n", o.lasts, b.Name)
		} else {
			found.After = time.Since(began).Round(time.Second)
			fmt.Printf("%8v  %-60s %s\n", found.After, b.Name, firstLine(failure))
		}
		report.Planted = append(report.Planted, found)
	}

	if o.report == "" {
		return failed, nil
	}
	return failed, report.write(o.report, "", nil)
}

func firstLine(s string) string {
	first, _, _ := strings.Cut(s, "\n")
	return first
}

// build builds the processes with the bug. The working tree isn't changed.
func (b bug) build(ctx context.Context, binary string) (string, error) {
	if b.File == "" {
		return os.Executable()
	}
	root, err := planted.Root()
	if err != nil {
		return "", err
	}

	overlay, err := b.Overlay(root, filepath.Dir(binary))
	if err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", binary, "./internal/real/nemesis")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s does not build: %w: %s", b.Name, err, out)
	}

	return binary, nil
}
