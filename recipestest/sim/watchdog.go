package sim

import (
	"fmt"
	"os"
	"runtime/debug"
	"time"
)

// wallLimit is the wall clock time after which we consider a schedule stuck. A schedule takes
// milliseconds, but a minute with the race detector on a very busy machine. (go test has ten.)
const wallLimit = 5 * time.Minute

// watch ends the process and prints all goroutines if a schedule hasn't ended in time. A stuck
// schedule can hold its bubble for ever, and then nothing inside the bubble could end it. So watch
// must be called outside the bubble, and uses the wall clock. stop ends the watch.
func watch(test string, seed uint64, only string) (stop func()) {
	return afterWallLimit(func() {
		fmt.Fprintf(os.Stderr, "sim: seed %d has not ended for %v. Replay it with\n\n%s\n\n", seed, wallLimit, replay(test, seed, only))
		debug.SetTraceback("all")
		panic(fmt.Sprintf("sim: seed %d is stuck", seed))
	})
}

// afterWallLimit calls f after wallLimit, unless it is stopped. Tests replace it.
var afterWallLimit = func(f func()) (stop func()) {
	late := time.AfterFunc(wallLimit, f)
	return func() { late.Stop() }
}
