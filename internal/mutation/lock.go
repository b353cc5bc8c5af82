package main

// Several locks at once, and locks that are asked for.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name: "lock all: the locks are taken in the order of the arguments",
			File: "lock/all.go",
			Old:  "cmp.Compare(paths[a], paths[b])",
			New:  "cmp.Compare(a, b)",
			Test: "TestLockAllHoldsAllAndGivesAllBack",
		},
		{
			Name: "lock all: a loss while another lock is waited for is an error",
			File: "lock/all.go",
			Old:  "if ctx.Err() != nil || lost == nil {",
			New:  "if err != nil {",
			Test: "TestLockAllBeginsAgainAfterALoss",
		},
		{
			Name: "lock all: a loss while another lock is waited for is not noticed",
			File: "lock/all.go",
			Old:  "		ctx = held\n",
			New:  "		_ = held\n",
			Test: "TestLockAllBeginsAgainAfterALoss",
		},
		{
			Name: "lock all: what it has stays locked when its context ends",
			File: "lock/all.go",
			Old:  "		held.Unlock(ctx)\n",
			New:  "",
			Test: "TestLockAllGivesBackWhatItHasWhenItsContextEnds",
		},
		{
			Name: "lock all: giving back hides a loss",
			File: "lock/all.go",
			Old:  "err != nil && !errors.Is(over, protocol.ErrLost)",
			New:  "err != nil",
			Test: "TestLockAllIsLostWithOneOfThem",
		},
		{
			Name: "revoke: any data ask for the lock",
			File: "lock/revoke.go",
			Old:  "case bytes.Equal(w.Data(), revocation):",
			New:  "case len(w.Data()) > 0 || bytes.Equal(nil, revocation):",
			Test: "TestRevokeAsksTheHolder",
		},
		{
			Name: "revoke: a holder listens for as long as its back-off lasts",
			File: "lock/revoke.go",
			Old:  "Go(l.awaitRevocation)",
			New:  "Go(func(ctx context.Context) { ctx, _ = l.Context(ctx); l.awaitRevocation(ctx) })",
			Test: "TestRevocationIsHeardOfThoughABackOffHasEnded",
		},
		{
			Name:    "lock: a client that holds another lock is said to hold this one",
			File:    "protocol/recipe.go",
			Old:     "if g.recipe.path == r.path {",
			New:     "if g.recipe.path != \"\" {",
			Test:    "TestWaitForALockOfOnesOwnSaysSo",
			Package: "./lock",
		},
	}...)
}
