package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestEverythingRuns runs the whole program, small, on the embedded server, and needs nothing but
// Go. The figures do not matter.
func TestEverythingRuns(t *testing.T) {
	var out bytes.Buffer
	plots := t.TempDir()
	o := options{embedded: true, alone: true, run: regexp.MustCompile(""), time: 20 * time.Millisecond, svg: plots}
	if err := bench(t.Context(), &out, o); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}

	t.Log(out.String())

	for _, c := range chapters {
		if !strings.Contains(out.String(), c.title) {
			t.Errorf("no table of %s", c.name)
		}
		svg, err := os.ReadFile(filepath.Join(plots, c.name+".svg"))
		if err != nil || !bytes.HasSuffix(svg, []byte("</svg>\n")) {
			t.Errorf("no plot of %s: %v", c.name, err)
		}
	}
}
