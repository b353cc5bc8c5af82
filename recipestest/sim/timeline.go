package sim

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// end returns when the last thing on the timeline ends.
func (f *Failure) end() time.Duration {
	end := time.Millisecond
	for _, e := range f.record.events {
		end = max(end, e.at)
	}
	for _, fault := range f.record.faults {
		end = max(end, fault.At)
	}
	return end
}

// timeline returns the report, and then everything that happened in the order of time.
func (f *Failure) timeline() string {
	f.record.mu.Lock()
	defer f.record.mu.Unlock()

	all := slices.Clone(f.record.events)
	for _, fault := range f.record.faults {
		all = append(all, fault.event())
	}
	for _, packets := range f.packets {
		all = append(all, packets...)
	}
	slices.SortStableFunc(all, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.lane, b.lane)) })
	return f.String() + "\n" + lines(all)
}

// write writes the timeline to a file.
func (f *Failure) write(t *testing.T) {
	name := fmt.Sprintf("%s-%d.txt", strings.ReplaceAll(t.Name(), "/", "-"), f.Seed)
	dir, err := directory(t)
	if err == nil {
		f.Timeline = filepath.Join(dir, name)
		err = os.WriteFile(f.Timeline, []byte(f.timeline()), 0o644)
	}

	if err != nil {
		f.Timeline = err.Error()
	}
}

// directory returns the directory for timelines.
func directory(t testing.TB) (string, error) {
	if *flagOut != "" {
		return *flagOut, os.MkdirAll(*flagOut, 0o755)
	}

	keeps := flag.Lookup("test.artifacts") // since Go 1.26; without it that directory is temporary
	if a, ok := t.(interface{ ArtifactDir() string }); ok && keeps != nil && keeps.Value.String() == "true" {
		return a.ArtifactDir(), nil
	}

	dir := filepath.Join(os.TempDir(), "sim")
	return dir, os.MkdirAll(dir, 0o755)
}
