package election

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The observer and the candidate of a listener do not learn of things in the same order.
func TestListenerIsNotToldOfALeaderThatIsPast(t *testing.T) {
	t.Parallel()
	var told []int64
	l := &listener{f: func(s State) { told = append(told, s.Leader.Token) }}
	for _, token := range []int64{0, 3, 5, 3, 0, 0, 7} {
		l.saw(Leader{Token: token})
	}
	require.Equal(t, []int64{0, 3, 5, 0, 7}, told)
}
