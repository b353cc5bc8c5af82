package zkrecipes_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const licencesHead = `# Notice

zkrecipes is under the [Apache License 2.0](LICENSE). A program that uses the recipes links two other modules,
` + "`github.com/go-zookeeper/zk` and `github.com/cenkalti/backoff/v4`" + `. The others below are for tests, the test kit, otel,
the command, the benchmarks and the examples. The last column has the go.mod files that require a module.

A test compares this page with those files, and with the licences in the module cache. ` + "`make api`" + ` writes it.

| module | licence | required by |
|---|---|---|
`

// A requirement is a module that go.mod files of this repository require.
type requirement struct {
	versions []string
	by       []string
}

func TestLicencesAreListed(t *testing.T) {
	required := requirements(t)
	env, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	require.NoError(t, err)
	if *record {
		var b strings.Builder
		for _, path := range slices.Sorted(maps.Keys(required)) {
			r := required[path]
			licence := licenceOf(t, string(env), path, r.versions[0], true)
			require.NotEmpty(t, licence, "%s has an unknown licence", path)
			fmt.Fprintf(&b, "| %s | %s | %s |\n", path, licence, strings.Join(r.by, ", "))
		}
		require.NoError(t, os.WriteFile("NOTICE.md", []byte(licencesHead+b.String()), 0o644))
	}

	// The page, the go.mod files and the module cache must agree.
	page := read(t, "NOTICE.md")
	require.True(t, strings.HasPrefix(page, licencesHead), "make api writes NOTICE.md")
	listed := make(map[string]string)
	for _, row := range regexp.MustCompile(`(?m)^\| (\S+\.\S+) \| (.*) \| (.*) \|$`).FindAllStringSubmatch(page, -1) {
		listed[row[1]] = row[2]
		if r := required[row[1]]; assert.NotNil(t, r, "%s is not required: make api writes NOTICE.md", row[1]) {
			assert.Equal(t, row[3], strings.Join(r.by, ", "), "%s: make api writes NOTICE.md", row[1])
		}
	}
	for path, r := range required {
		assert.Contains(t, listed, path, "make api writes NOTICE.md")
		for _, version := range r.versions {
			if licence := licenceOf(t, string(env), path, version, false); licence != "" {
				assert.Equal(t, licence, listed[path], path)
			}
		}
	}
}

// go.work replaces the version that is required here. A release requires another version in all
// modules.
func TestModulesRequireOneVersionOfEachOther(t *testing.T) {
	versions := make(map[string]bool)
	for _, module := range []string{"bench", "cmd/zkr", "otel", "recipestest/ensemble"} {
		for _, match := range regexp.MustCompile(`(?m)github\.com/zkrecipes/zkrecipes\S* (v\S+)`).FindAllStringSubmatch(read(t, module+"/go.mod"), -1) {
			versions[match[1]] = true
		}
	}
	require.Len(t, versions, 1)
}

func requirements(t *testing.T) map[string]*requirement {
	t.Helper()
	line := regexp.MustCompile(`(?m)^(?:require )?\t?(\S+\.\S+/\S+|\S+\.\S+) (v\S+)`)
	required := make(map[string]*requirement)
	for _, path := range files(t, "go.mod") {
		for _, match := range line.FindAllStringSubmatch(read(t, path), -1) {
			if strings.HasPrefix(match[1], "github.com/zkrecipes/") {
				continue
			}
			r := required[match[1]]
			if r == nil {
				r = &requirement{}
				required[match[1]] = r
			}
			r.by = append(r.by, path)
			if !slices.Contains(r.versions, match[2]) {
				r.versions = append(r.versions, match[2])
			}
		}
	}
	require.NotEmpty(t, required)
	return required
}

// licenceOf returns the licence of a module as its text has it, or nothing if the module is not in
// the module cache.
func licenceOf(t *testing.T, cache, path, version string, download bool) string {
	t.Helper()
	if download {
		out, err := exec.CommandContext(t.Context(), "go", "mod", "download", path+"@"+version).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	// The module cache escapes capitals in paths.
	escaped := regexp.MustCompile("[A-Z]").ReplaceAllStringFunc(path, func(s string) string { return "!" + strings.ToLower(s) })
	dir := filepath.Join(strings.TrimSpace(cache), filepath.FromSlash(escaped)+"@"+version)

	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	found := make(map[string]bool)
	for _, entry := range entries {
		if name := regexp.MustCompile(`(?i)^(licen[sc]e|copying)`); name.MatchString(entry.Name()) && !entry.IsDir() {
			text := strings.Join(strings.Fields(read(t, filepath.Join(dir, entry.Name()))), " ")
			for phrase, licence := range phrases {
				found[licence] = found[licence] || strings.Contains(text, phrase)
			}
		}
	}
	maps.DeleteFunc(found, func(_ string, ok bool) bool { return !ok })
	// The text of BSD-3-Clause contains the text of BSD-2-Clause.
	if found["BSD-3-Clause"] {
		delete(found, "BSD-2-Clause")
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), " and ")
}

// phrases has words that only one licence has (but BSD-3-Clause also has those of BSD-2-Clause).
var phrases = map[string]string{
	"Apache License Version 2.0":                    "Apache-2.0",
	`Apache License, Version 2.0 (the "License")`:   "Apache-2.0",
	"Permission is hereby granted, free of charge":  "MIT",
	"Mozilla Public License, version 2.0":           "MPL-2.0",
	"Mozilla Public License Version 2.0":            "MPL-2.0",
	"Redistribution and use in source and binary":   "BSD-2-Clause",
	"may be used to endorse or promote products":    "BSD-3-Clause",
	"Permission to use, copy, modify, and/or distr": "ISC",
}
