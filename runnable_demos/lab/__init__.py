"""What demos share: the table of what is measured, the meters, real ranks, records and figures."""
