package main

import "github.com/spf13/cobra"

func newBarrierCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "barrier", Short: "Barriers"}
	cmd.AddCommand(newBarrierEnterCommand(a))
	return cmd
}

func newGroupCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "group", Short: "Groups"}
	cmd.AddCommand(newGroupJoinCommand(a))
	return cmd
}

func newQueueCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "queue", Short: "Queues"}
	cmd.AddCommand(newQueueWorkCommand(a))
	return cmd
}
