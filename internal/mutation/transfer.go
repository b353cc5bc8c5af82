package main

// The example of two-phase commit.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name: "transfer: an abort overrules a vote",
			File: "examples/transfer/transfer.go",
			Old:  "s.Set(ctx, node, []byte(abort), 0)",
			New:  "s.Set(ctx, node, []byte(abort), -1)",
			Test: "TestVoteOfAParticipantThatIsAwayStands",
		},
		{
			Name: "transfer: the outcome is gone before the coordinator has read it",
			File: "examples/transfer/transfer.go",
			Old:  "	defer own.Withdraw(ctx)\n	return l.outcome(",
			New:  "	own.Withdraw(ctx)\n	return l.outcome(",
			Test: "TestFaultAtEachPacketOfATransfer/coordinator/cut",
		},
		{
			Name: "transfer: an account prepares a change twice",
			File: "examples/transfer/transfer.go",
			Old:  "if _, again := a.prepared[id]; again {",
			New:  "if false {",
			Test: "TestAccountPreparesAndSettlesAChangeOnce",
		},
	}...)
}
