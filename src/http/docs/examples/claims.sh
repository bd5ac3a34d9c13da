for order in A-17 A-18 A-19 A-20; do sh claim.sh $order; done
