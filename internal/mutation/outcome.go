package main

// What becomes of a call whose outcome is not known, and the clean-up after it.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name: "clean-up: ends with its caller's back-off",
			File: "protocol/retry.go",
			Old:  "if wait == backoff.Stop && (d != nil || ctx == s.life) {",
			New:  "if wait == backoff.Stop && ctx == s.life {",
			Test: "TestFinishGoesOnAfterItsBackOffHasEnded",
		},
		{
			Name: "clean-up: its caller waits for the end of it",
			File: "protocol/retry.go",
			Old:  "			d.giveUp(givenUp(err))\n",
			New:  "",
			Test: "TestReleaseGoesOnAfterItsBackOffHasEnded",
		},
		{
			Name: "clean-up: ends when the server refuses it",
			File: "protocol/retry.go",
			Old:  "d == nil && ctx != s.life || ctx.Err() != nil",
			New:  "true || ctx.Err() != nil",
			Test: "TestReleaseThatIsRefusedIsDoneWhenItIsAllowed/embedded",
		},
		{
			Name: "clean-up: what may stand in line is forgotten if the line cannot be listed",
			File: "protocol/line.go",
			Old:  "}, c.settle)",
			New:  "}, c.find)",
			Test: "TestCreateThatMayNotBeSettledIsUndoneWhenItMay/embedded",
		},
		{
			Name: "clean-up: a ReleaseTo that is refused leaves the holder's node",
			File: "protocol/handover.go",
			Old:  "if failed := h.line.pass(ctx, s, g.node); failed != nil {",
			New:  "if failed := err; failed != nil {",
			Test: "TestReleaseToThatIsRefusedIsARelease/embedded",
		},
		{
			Name: "grants: a node that may not be read is not looked after",
			File: "protocol/grant.go",
			Old:  "			_, err = g.stat(g.life)\n",
			New:  "			return\n",
			Test: "TestHolderThatMayNotReadItsNodeHearsOfABreak/embedded",
		},
		{
			Name: "errors: a deadline does not say what the server did",
			File: "protocol/retry.go",
			Old:  "return zero, d.contextError(ctx)",
			New:  "return zero, contextError(ctx)",
			Test: "TestDeadlineSaysWhatTheServerDid",
		},
		{
			Name: "errors: a deadline during an attempt does not say what the one before died of",
			File: "protocol/retry.go",
			Old:  "} else if last != nil {",
			New:  "} else if last != nil && last == err {",
			Test: "TestDeadlineDuringAnAttemptSaysWhatTheLastDiedOf",
		},
		{
			Name: "outcome: the cause of a context is taken for an answer",
			File: "protocol/errors.go",
			Old:  `return fmt.Errorf("%w: %v", err, cause)`,
			New:  `return fmt.Errorf("%w: %w", err, cause)`,
			Test: "TestCauseThatLooksLikeAnOutageIsNotRepeated|TestContextErrorHasTheText",
		},
		{
			Name: "outcome: a create that may have happened is repeated",
			File: "protocol/retry.go",
			Old:  "if out == unknown && settle != nil",
			New:  "if false && out == unknown && settle != nil",
			Test: "TestSettleAsksOnlyWhereTheOutcomeIsUnknown|TestOneNodeWhateverPacketIsLost",
		},
		{
			Name:    "outcome: our own deletion is taken for somebody else's",
			File:    "protocol/retry.go",
			Old:     "repeated = repeated || outcomeOf(err) == unknown",
			New:     "repeated = false",
			Package: "./lock",
			Test:    "TestUnlockSucceedsThoughItsReplyIsLost/embedded",
		},
		{
			Name:    "outcome: a grant that comes when ctx has ended is kept",
			File:    "protocol/acquire.go",
			Old:     "if err == nil && ctx.Err() != nil {",
			New:     "if false {",
			Package: "./lock",
			Test:    "TestContextThatEndsAtAnyStepFails/embedded",
		},
		{
			Name:    "outcome: what was begun for a ctx that has ended stays",
			File:    "protocol/retry.go",
			Old:     "if err == nil && undo != nil {",
			New:     "if false {",
			Package: "./recipestest/sim",
			Test:    "TestSimSimple",
		},
		{
			Name: "outcome: a second node of ours is waited for",
			File: "protocol/line.go",
			Old:  "for i := self + 1; self >= 0 && i < len(line); i++ {",
			New:  "for i := len(line); i < len(line); i++ {",
			Test: "TestSecondNodeOfOursIsDeleted",
		},
	}...)
}
