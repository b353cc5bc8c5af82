package main

import (
	"strings"
	"testing"
	"testing/synctest"
)

const want = `Redlock: the first client holds the lock: true. Clocks leap.
  The second client holds the lock: true. It writes: done.
  The first client looks once more, and holds the lock: true.
  If it paused after its first look, it writes now: done.
zkrecipes: the first client holds the lock: true. Clocks leap.
  The second client holds the lock: true. It writes: done.
  The first client looks once more, and holds the lock: false.
  If it paused after its first look, it writes now: refused, a greater token was seen.
`

// The bubble gives both locks a clock of their own, which a busy machine cannot delay.
func TestOnlyTokensKeepOutALateWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		if err := run(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("%s", &out)
		}
	})
}
