package trust

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only Elapsed may look at the wall clock alone, which can be set back: it takes the longer of the
// two times. Whatever drops the monotonic reading elsewhere would let a clock that is set back
// prolong trust. Simulations cannot show that, as their clients have one clock.
func TestNothingElseDropsTheMonotonicClock(t *testing.T) {
	drops := regexp.MustCompile(
		`(?m)^[^/\n]*\.((Unix\w*|UTC|Local|AddDate|Date|Clock|Format|Marshal(Text|Binary)|Wall)\(|(Round|Truncate)\(0\)).*`)
	for _, dir := range []string{".", "../session", "../conn", "../../protocol", "../../protocol/recipe"} {
		files, err := filepath.Glob(dir + "/*.go")
		require.NoError(t, err)
		for _, name := range files {
			source, err := os.ReadFile(name)
			require.NoError(t, err)
			found := drops.FindAllString(string(source), -1)
			switch {
			case strings.HasSuffix(name, "_test.go"):
			case name == "clock.go":
				require.Len(t, found, 1, "in Elapsed")
			default:
				require.Empty(t, found, name)
			}
		}
	}
}
