package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A bug is planted into a copy of the library that the processes are built with. Old must occur
// once in File. A bug without a File is in what the processes do.
type bug struct {
	Name     string
	Recipes  string // that are run, such as lock,queue
	File     string
	Old, New string
}

// A finding is what became of a planted bug.
type finding struct {
	bug
	After time.Duration // 0 if it was not found
	By    string
}

// findPlanted looks for each bug with the faults of the seed, which are drawn as in other runs.
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
		plan.Recipes = strings.Split(b.Recipes, ",")
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

// build builds the processes with the bug. The working tree is not changed.
func (b bug) build(ctx context.Context, binary string) (string, error) {
	if b.File == "" {
		return os.Executable()
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	original := filepath.Join(root, b.File)
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	planted, err := b.plant(string(source))
	if err != nil {
		return "", err
	}

	instead := binary + ".go"
	if err := os.WriteFile(instead, []byte(planted), 0o600); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: instead}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(binary+".json", overlay, 0o600); err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "build", "-overlay", binary+".json", "-o", binary, "./internal/nemesis")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s does not build: %w: %s", b.Name, err, out)
	}
	return binary, nil
}

func (b bug) plant(source string) (string, error) {
	if n := strings.Count(source, b.Old); n != 1 {
		return "", fmt.Errorf("%s: its code occurs %d times in %s: %q", b.Name, n, b.File, b.Old)
	}
	return strings.Replace(source, b.Old, b.New, 1), nil
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("run it within the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
