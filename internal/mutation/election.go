package main

// The election.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name:    "election: a Proclaim is written again when its answer was lost",
			File:    "protocol/handover.go",
			Old:     "done, err = g.wasSet(ctx, data, stat.Version)",
			New:     "_, err = g.wasSet(ctx, data, stat.Version)",
			Package: "./election",
			Test:    "TestProclaimWithTheConnectionCutAtAnyPacket/embedded|TestProclaimTakesEffectOnce/embedded",
		},
		{
			Name:    "election: a Proclaim that was not executed counts as done",
			File:    "protocol/handover.go",
			Old:     "err != nil || now.version == version:\n		return false, err",
			New:     "err != nil || now.version == version:\n		return true, err",
			Package: "./election",
			Test:    "TestProclaimWithTheConnectionCutAtAnyPacket/embedded",
		},
		{
			Name: "election: the node is given up before the work is over",
			File: "election/election.go",
			Old:  "done := protocol.Scope(ctx, t.grant, func(held context.Context) error {",
			New:  "done := protocol.Scope(ctx, t.grant, func(held context.Context) error {\n		protocol.Release(context.WithoutCancel(ctx), t.grant)",
			Test: "TestRunLeadsAgainAfterEachEndOfATerm/embedded|TestRunEndsWithItsContextAfterLeadHasReturned",
		},
		{
			Name:    "election: the leader is read without a sync",
			File:    "protocol/front.go",
			Old:     "	found, err = persist(ctx, l.client, func(s *Session) (bool, error) {\n		if err := s.sync(ctx, s.Path(l.path)); err != nil {\n			return false, err\n		}",
			New:     "	found, err = persist(ctx, l.client, func(s *Session) (bool, error) {",
			Package: "./election",
			Test:    "TestLeaderIsNoOlderThanTheCall|TestElectionIsAFairLock",
		},
	}...)
}
