package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestEverythingRuns runs the whole program on the embedded server, with so little time for each
// contestant that the figures mean nothing. It needs only Go.
func TestEverythingRuns(t *testing.T) {
	var out bytes.Buffer
	o := options{embedded: true, alone: true, run: regexp.MustCompile(""), time: 20 * time.Millisecond}
	if err := bench(t.Context(), &out, o); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}

	t.Log(out.String())

	// Every chapter must have measured something, because a chapter without rows prints nothing.
	for _, c := range chapters {
		if !strings.Contains(out.String(), c.title) {
			t.Errorf("no table of %s", c.name)
		}
	}
}
